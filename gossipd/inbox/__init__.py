"""The inbox: a folder into which operators drop manifests.

``inbox`` decides when a file is looked at and offered; ``drop_folder`` reads and moves files; ``settled_files``
names and deletes those that were moved, ``stuck_files`` remembers those that could not be. The daemon decides whether
a manifest is accepted.
"""
