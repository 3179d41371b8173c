"""What is made on entry and ends with the block, also where making it broke off half-way."""


class Held:
    """A context manager; whoever derives from it makes in `_make` and ends in `close`, which may find a part only."""

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()
