-- No engine in particular: any kernel that was measured, and half a millisecond of host time a step. The default.
return engine {}
