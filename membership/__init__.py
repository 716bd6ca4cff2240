"""SWIM membership that stays right under load, loss, cuts and churn. Stands alone: never imports gossipd."""
