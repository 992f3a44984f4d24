"""The dashboard: pages that draw what envsched_core.views reads, and compute nothing themselves.

    entry       what `streamlit run` gets          app         page set-up and navigation
    frame       sidebar: run, step, filters        loading     the one cached door to envsched_core.views
    charts      table -> plotly figure             words       numbers -> one plain sentence
    parts       table twins, notices, links        graph_view  the graph component
    app_pages   one file per page

Text from logs is untrusted: it goes into st.text, st.code, table cells and escaped chart labels, never into
markdown or HTML. Modules import each other relatively, since the installed name (envsched_dashboard) is not
the folder's.
"""
