//go:build !linux

package pace

import (
	"math"
	"time"
)

// timerClock sleeps on a timer of the runtime.
type timerClock struct {
	start time.Time
	woken chan struct{}
}

func systemClock() Clock {
	return &timerClock{start: time.Now(), woken: make(chan struct{}, 1)}
}

// Now implements Clock.
func (c *timerClock) Now() int64 { return int64(time.Since(c.start)) }

// Begin implements Clock.
func (c *timerClock) Begin() {}

// SleepUntil implements Clock.
func (c *timerClock) SleepUntil(t int64) {
	if t == math.MaxInt64 {
		<-c.woken
		return
	}
	timer := time.NewTimer(time.Duration(t - c.Now()))
	defer timer.Stop()
	select {
	case <-c.woken:
	case <-timer.C:
	}
}

// Wake implements Clock.
func (c *timerClock) Wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}
