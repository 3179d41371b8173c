"""What a run has done so far, in a file, so that one that was broken off is gone on with. Under other
conditions, such as other programs, it begins anew."""
import json


class Progress:
    """path: of the file; conditions: plain values that rows depend on. Errors: OSError."""

    def __init__(self, path, conditions):
        self._path, self._kept = path, {"conditions": json.loads(json.dumps(conditions)), "found": {}}
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if earlier.get("conditions") == self._kept["conditions"]:
            self._kept = earlier

    def __len__(self):
        return len(self._kept["found"])

    def found(self, *key, make):
        """What `make` gave for that key, in this run or an earlier one: plain values."""
        name = " ".join(map(str, key))
        if name not in self._kept["found"]:
            self._kept["found"][name] = make()
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps(self._kept) + "\n", encoding="utf-8")
            draft.rename(self._path)
        return self._kept["found"][name]

    def end(self):
        """All of it is in the results."""
        self._path.unlink(missing_ok=True)
