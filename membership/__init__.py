"""SWIM membership that stays right under load, loss, cuts and churn. Stands alone: never imports gossipd.

``swim`` is the brain (pure), ``runtime`` runs it under trio, the tests have a simulator of many brains. Read ``member``
and ``events`` first, then ``swim``; ``suspicion`` says when a member is declared dead, ``wire`` the format.
"""
