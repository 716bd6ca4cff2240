"""Publishing: find the files, hash every chunk on all cores, sign the result.

``selection`` says which files count, ``tree`` finds them on a disk and ``bucket`` in object storage, ``extents`` cuts
the work, ``hashing`` does it in threads, ``files`` and ``bucket`` read, ``publisher`` puts it together, ``output``
writes the manifest. No other hand is imported; nothing here talks to a daemon.
"""
