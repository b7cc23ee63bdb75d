//go:build race

package pebblekv

func init() { raceDetector = true }
