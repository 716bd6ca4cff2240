#!/bin/sh
# Wait until this host has a model, then serve it with vLLM.
#
#   export GOSSIPD_SOCKET=/var/lib/gossipd/gossipd.sock
#   ./vllm_serve.sh qwen@3 --port 8000 --tensor-parallel-size 8
#
# All words after the model go to vLLM. Run it as the daemon's user or as root: nobody else may ask the daemon.
# WAIT_S is how long to wait at most. The exit code is then that of `gossipd path`.
set -eu

model=$1
shift
left=${WAIT_S:-3600}

# `gossipd path` ends with 3 while the model is not complete on this host, and with 4 while the daemon does not answer.
# (`gossipd wait` waits for the whole cluster, or for a share of it.)
while true; do
    code=0
    answer=$(gossipd path "$model" 2>&1) || code=$?
    [ "$code" -ne 0 ] || break
    if { [ "$code" -ne 3 ] && [ "$code" -ne 4 ]; } || [ "$left" -le 0 ]; then
        echo "$answer" >&2
        exit "$code"
    fi
    left=$((left - 2))
    sleep 2
done

# A version never changes, so a later one does not disturb what is loaded from here.
exec vllm serve "$answer" --served-model-name "${model%@*}" "$@"
