"""Publishing: find the files, hash every chunk on all cores, sign the result.

``selection`` chooses files; ``tree`` finds them on a disk and ``bucket`` in object storage; ``extents`` divides the
work, ``hashing`` does it in threads, ``file_reading`` and ``bucket`` read; ``publisher`` runs all steps; ``output``
writes the manifest; ``errors`` names the failures. Nothing here talks to a daemon.
"""
