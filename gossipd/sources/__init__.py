"""External storage: ranged reads from http(s), S3, files, and whatever else obstore opens.

``reader``    what a seed does: chunks in, each whole body to the store; and the probe.
``requests``  one range of one object.  ``ranges``  from chunks to requests.  ``assembly``  from bytes to chunks.
``location``  the address of an object.  ``versions``  which version of it is read.
``first_request``     the first look, without obstore: redirects, addresses, Retry-After.  ``clients``  obstore's
streams. ``admission``, ``pace``  who may be asked now.  ``errors``  what can go wrong, by name.  ``settings``  every
limit.

Credentials come from this host's environment only. It decides nothing about what to read: that is the planner's.
"""
