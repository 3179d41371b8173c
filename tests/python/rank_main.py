"""A training process of the tests: runs MODULE:FUNCTION with keyword arguments in JSON and prints what it gave back as
`result JSON`. What is raised ends it with its traceback. Not a test by itself."""
import importlib
import json
import sys


def main():
    module, function = sys.argv[1].split(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    print("result " + json.dumps(result), flush=True)


main()
