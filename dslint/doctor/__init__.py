"""``dslint doctor``: looks at the machine on which a job is to run; changes nothing but a lock proven stale."""
