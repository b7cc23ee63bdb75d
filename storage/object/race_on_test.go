//go:build race

package object

// raceEnabled: the race detector makes memory slow and empties pools at random.
const raceEnabled = true
