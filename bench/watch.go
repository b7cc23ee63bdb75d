package bench

import (
	"sync"
	"time"
)

// memoryWatch samples a process's RSSAnon and keeps the highest.
type memoryWatch struct {
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup
	peak int64
}

// watchEvery is far below what a layer takes to pile up, and reading one file of
// /proc so often costs nothing that shows.
const watchEvery = 20 * time.Millisecond

// watchMemory watches pid; 0 is nobody.
func watchMemory(pid int) *memoryWatch {
	w := &memoryWatch{quit: make(chan struct{})}
	if pid == 0 {
		return w
	}
	w.done.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			w.peak = max(w.peak, RSSAnon(pid))
			select {
			case <-w.quit:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

// stop ends the watch and returns the peak in bytes. It may be called again.
func (w *memoryWatch) stop() int64 {
	w.once.Do(func() { close(w.quit) })
	w.done.Wait()
	return w.peak
}
