"""A training process of the tests: runs MODULE:FUNCTION with keyword arguments in JSON and prints what it gave back as
`result JSON`. What is raised ends it with its traceback. Not a test by itself."""
import faulthandler
import importlib
import json
import sys


STUCK_S = 45  # then every thread's place is printed, for whoever looks into a test that ran past its deadline


def main():
    faulthandler.dump_traceback_later(STUCK_S)
    module, function = sys.argv[1].split(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    print("result " + json.dumps(result), flush=True)


main()
