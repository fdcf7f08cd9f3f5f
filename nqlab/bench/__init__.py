"""How fast the lab is, as ratios inside one process against a plain reference step. Nothing else imports this."""
