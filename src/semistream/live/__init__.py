"""The live page of a running query, and the same page as a file.

    records of micro-batches -> feed -> server -> page.html     (a running query)
    metrics.jsonl -> report -> page.html with the records in it (afterwards)

``page.html`` has no dependency and loads nothing from other sites. It reads the records by field
name: a field that is missing is shown as "not reported", and one that it does not know is ignored.
"""
