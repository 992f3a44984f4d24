"""What `streamlit run` gets."""

from envsched_dashboard.app import main

main()
