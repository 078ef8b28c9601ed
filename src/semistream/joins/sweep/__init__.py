"""SweepJoin: ``sweepjoin.py`` shows the loop, the other files are its parts."""
