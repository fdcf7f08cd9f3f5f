"""The explorer. Start it with: streamlit run app.py"""

import sys

import streamlit as st

if not st.runtime.exists():
    sys.exit("This is a Streamlit app; start it with: streamlit run app.py   (or: make app)")

from nqlab.ui import train_page

st.set_page_config(page_title="nqlab", page_icon=":material/query_stats:", layout="wide")
st.navigation([st.Page(train_page.page, title="Train", icon=":material/play_circle:", default=True)]).run()
