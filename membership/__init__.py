"""SWIM membership that stays right under load, loss, cuts and churn. Stands alone: never imports gossipd.

``swim`` is the brain (pure), ``runtime`` its trio body, ``testing`` a simulator of many brains. Read ``member`` and
``events`` first, then ``swim``; ``suspicion`` holds the theory of who is declared dead when, ``wire`` the format.
"""
