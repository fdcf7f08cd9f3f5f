"""The explorer. Start it with: streamlit run app.py"""

import sys

import streamlit as st

if not st.runtime.exists():
    sys.exit("This is a Streamlit app; start it with: streamlit run app.py   (or: make app)")

from nqlab.ui import (
    argument_page,
    compare_page,
    latency_page,
    microscope_page,
    open_page,
    runs_page,
    stability_page,
    sweep_page,
    train_page,
    visit,
)
from nqlab.words import _

st.set_page_config(page_title="nqlab", page_icon=":material/query_stats:", layout="wide")
visit.begin()
pages = [
    st.Page(train_page.page, title=_("Train"), icon=":material/play_circle:", url_path="train", default=True),
    st.Page(runs_page.page, title=_("Runs"), icon=":material/folder_open:", url_path="runs"),
    st.Page(sweep_page.page, title=_("Sweep"), icon=":material/apps:", url_path="sweep"),
    st.Page(compare_page.page, title=_("Compare"), icon=":material/balance:", url_path="compare"),
    st.Page(stability_page.page, title=_("Stability"), icon=":material/grid_on:", url_path="stability"),
    st.Page(microscope_page.page, title=_("Microscope"), icon=":material/biotech:", url_path="microscope"),
    st.Page(latency_page.page, title=_("Latency"), icon=":material/timer:", url_path="latency"),
    st.Page(open_page.page, title=_("Open questions"), icon=":material/help_center:", url_path="open"),
    st.Page(argument_page.page, title=_("The argument"), icon=":material/function:", url_path="argument"),
]
st.navigation(pages, position="hidden" if visit.follows() else "sidebar").run()
if not visit.follows():
    with st.sidebar:
        visit.language_choice()
