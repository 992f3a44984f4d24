"""One file per page; each has `show(frame)` and answers one question."""
