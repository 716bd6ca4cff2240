#!/bin/sh
# A hook that posts its event, a JSON object, to the address that is its argument:
#
#     [hooks]
#     alarm = ["/usr/local/bin/webhook.sh", "https://hooks.example/gossipd"]
#
# Anything but a status of 2xx within 20 s is a failure: the daemon tries twice more, and `gossipd status --json` has it.
exec curl --silent --show-error --fail --max-time 20 --output /dev/null \
    --header 'Content-Type: application/json' --data-binary @- "$1"
