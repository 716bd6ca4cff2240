"""External storage: ranged reads from http(s), S3, files and the other schemes of obstore.

* ``reader`` reads chunks into the store and probes sources; ``range_request`` one range of one object
* ``ranges`` from chunks to requests, ``assembly`` from bytes to chunks
* ``location`` the address of an object, ``versions`` which version of it is read
* ``first_request`` the first request to an object, without obstore: redirects, addresses, Retry-After
* ``web_stream`` the ranges of web objects, likewise without obstore, over kept connections
* ``obstore_clients`` obstore's streams; ``admission``, ``host_pace`` when a host may be asked
* ``connection_limit``, ``request_rate`` how much a host allows, ``mirror_rates`` which mirror gives most
* ``errors`` each failure by name, ``settings`` every limit

Credentials come from this host's environment only. The planner decides what to read.
"""
