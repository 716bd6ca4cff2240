"""What is wrong, and who can cure it: pure functions over what a daemon or a host has told.

* Before a deployment: ``plan`` (who would take it)
* During one: ``causes`` (why it is not complete), ``drift`` (in what hosts differ), ``checks`` (what ``gossipd doctor``
  looks at)
* After one: ``report``, ``fluid_bound`` (the least time that its links allowed), ``host_courses`` (for traces)
* For others: ``redaction`` (taking secrets out of what leaves the host)
"""
