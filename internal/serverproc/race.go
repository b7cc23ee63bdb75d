//go:build race

package serverproc

// Race says whether this process runs with the race detector.
const Race = true
