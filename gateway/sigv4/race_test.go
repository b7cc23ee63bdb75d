//go:build race

package sigv4

const raceEnabled = true // sync.Pool drops items at random under the race detector
