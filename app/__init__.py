"""The reviewers' dashboard (Streamlit). Installed as `qualgate_app`; opened by `qualgate dashboard`."""

LOGIN = "QUALGATE_LOGIN"  # set by `qualgate dashboard --login`: the file of the provider's settings
PROXY = "QUALGATE_PROXY"  # set by `--proxy`: the file that says whose headers name a person
STREAMLIT_CONFIG = {
    "server.address": "127.0.0.1",
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    "theme.light.primaryColor": "#0b5cad",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f6f8fa",
    "theme.light.textColor": "#1f2328",
    "theme.dark.primaryColor": "#6cb6ff",
    "theme.dark.backgroundColor": "#0d1117",
    "theme.dark.secondaryBackgroundColor": "#161b22",
    "theme.dark.textColor": "#e6edf3",
}
