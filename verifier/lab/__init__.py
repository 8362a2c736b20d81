"""The performance lab: simulate, calibrate, tune, compare. Measured on real ranks, or computed.

Special here: every answer is a ``Finding``, plain data with a table, notes and a chart; one renderer each makes text,
JSON, HTML and plots of any of them.
"""
