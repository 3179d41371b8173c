"""What benchmarks between network namespaces share. Standard library alone. Of the command's own process.

ending       signals
held         the form of what ends with its block
namespaces   namespaces that end with their object, and calls of iproute2
processes    daemons and ranks in them, which end with their object
machine      what a reader needs to judge figures by
"""
