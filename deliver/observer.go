package deliver

import (
	"time"

	"github.com/objcached/objcached/descriptor"
)

// Observer is told what deliveries did. Its methods are called concurrently
// and hold the delivery up: they count and return.
type Observer interface {
	// Delivered is called once for every payload that was begun.
	Delivered(Report)
	// Refused is called when a delivery is refused because of a limit.
	Refused(limit string)
}

// Report describes one delivery.
type Report struct {
	Mode       descriptor.Mode // Layer or Chunk; of a single object its path
	Requested  int             // chunks named
	Matched    int             // chunks served; fewer than Requested if truncated
	Layers     int             // layers made ready
	Bytes      int64           // payload bytes put in place
	FirstLayer time.Duration   // from Prepare to the first layer ready; 0 if none was
	Total      time.Duration   // from Prepare to the end
	Err        error           // nil: the payload is whole
}

type noObserver struct{}

func (noObserver) Delivered(Report) {}
func (noObserver) Refused(string)   {}
