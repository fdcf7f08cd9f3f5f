"""The explorer. Start it with: streamlit run app.py"""

import sys

import streamlit as st

if not st.runtime.exists():
    sys.exit("This is a Streamlit app; start it with: streamlit run app.py   (or: make app)")

from nqlab.ui import argument_page, compare_page, microscope_page, stability_page, sweep_page, train_page

st.set_page_config(page_title="nqlab", page_icon=":material/query_stats:", layout="wide")
st.navigation(
    [
        st.Page(train_page.page, title="Train", icon=":material/play_circle:", url_path="train", default=True),
        st.Page(sweep_page.page, title="Sweep", icon=":material/apps:", url_path="sweep"),
        st.Page(compare_page.page, title="Compare", icon=":material/balance:", url_path="compare"),
        st.Page(stability_page.page, title="Stability", icon=":material/grid_on:", url_path="stability"),
        st.Page(microscope_page.page, title="Microscope", icon=":material/biotech:", url_path="microscope"),
        st.Page(argument_page.page, title="The argument", icon=":material/function:", url_path="argument"),
    ]
).run()
