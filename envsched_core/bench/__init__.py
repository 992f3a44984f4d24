"""Comparisons and judgements over whole runs: what `envsched assess` prints, and the recorded run."""
