"""The pages, each run by Streamlit from top to bottom."""
