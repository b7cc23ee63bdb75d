package pace

// Clock tells the time and puts the pacer to sleep. Times are nanoseconds of
// a clock that only goes forward.
type Clock interface {
	Now() int64
	// SleepUntil returns at time t, or when Wake is called; at once if Wake has
	// been called since the last SleepUntil returned. math.MaxInt64 is never.
	// One goroutine calls it.
	SleepUntil(t int64)
	// Wake may be called by anyone at any time.
	Wake()
	// Begin is called once, by the goroutine that will sleep, before it does.
	Begin()
}
