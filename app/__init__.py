"""The reviewers' dashboard (Streamlit). Installed as `qualgate_app`; opened by `qualgate dashboard`."""

STREAMLIT_CONFIG = {
    "server.address": "127.0.0.1",
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "none",
    "theme.base": "light",
    "theme.primaryColor": "#0b5cad",
    "theme.backgroundColor": "#ffffff",
    "theme.secondaryBackgroundColor": "#f6f8fa",
    "theme.textColor": "#1f2328",
}
