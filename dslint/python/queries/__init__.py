"""Questions that rules ask: each is a walk over the trees of events, and no rule looks at code by itself."""
