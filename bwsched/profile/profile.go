// Package profile holds what is known about a deployment before its first
// request: from which payload layerwise delivery pays (ObjectCache, §3.4), how
// far above the zero-stall rate the knee of the TTFT curve lies (§3.6, Eq. 7),
// the curves themselves, and how long the model computes (Table A8).
//
// `objcached calibrate` writes one, `objcached serve --profile` reads it. It is
// a JSON object:
//
//	version               1
//	note                  where it comes from, for people
//	mode_threshold_bytes  the payload from which delivery auto goes layer by layer
//	margin_bytes_per_s    what cal-stall-opt adds to each zero-stall rate
//	compute_windows       an array of {class, layers, layer_bytes, layer_compute_us}
//	curves                an object of classes, each an array of
//	                      {rate_bytes_per_s, added_s, weight}
//
// All but version may be left out. A profile does not change once read.
package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/objcached/objcached/bwsched"
)

// Version is the one that this package writes and reads.
const Version = 1

// Bounds of a profile.
const (
	MaxBytes   = 8 << 20 // of a file
	MaxWindows = 4096
	maxClass   = 256 // bytes of a name
)

// A Profile describes a deployment. Nil fields say nothing.
type Profile struct {
	Version       int             `json:"version"`
	Note          string          `json:"note,omitempty"`
	ModeThreshold *int64          `json:"mode_threshold_bytes,omitempty"` // bytes
	Margin        *float64        `json:"margin_bytes_per_s,omitempty"`
	Windows       []Window        `json:"compute_windows,omitempty"`
	Curves        *bwsched.Curves `json:"curves,omitempty"`
}

// A Window says how long one layer of a kind of request computes.
type Window struct {
	Class      string  `json:"class"`
	Layers     int     `json:"layers"`
	LayerBytes int64   `json:"layer_bytes"` // of one layer's payload, all chunks
	ComputeUs  float64 `json:"layer_compute_us"`
}

func (w Window) compute() time.Duration {
	return time.Duration(w.ComputeUs * float64(time.Microsecond))
}

// Read reads a profile and checks it. The error names the field.
func Read(r io.Reader) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("profile of more than %d bytes", MaxBytes)
	}
	// The version first: fields that a later one has are not misspelt.
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if v.Version != Version {
		return nil, fmt.Errorf("profile: version is %d, this program reads %d", v.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	p := &Profile{}
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return p, nil
}

// Write writes a profile that Read accepts.
func (p *Profile) Write(w io.Writer) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}

// Validate checks the bounds. The error names the field.
func (p *Profile) Validate() error {
	switch {
	case p.Version != Version:
		return fmt.Errorf("version is %d, not %d", p.Version, Version)
	case p.ModeThreshold != nil && *p.ModeThreshold < 0:
		return fmt.Errorf("mode_threshold_bytes is %d", *p.ModeThreshold)
	case p.Margin != nil && (*p.Margin < 0 || math.IsNaN(*p.Margin) || math.IsInf(*p.Margin, 0)):
		return fmt.Errorf("margin_bytes_per_s is %v", *p.Margin)
	case len(p.Windows) > MaxWindows:
		return fmt.Errorf("compute_windows: %d, the limit is %d", len(p.Windows), MaxWindows)
	}
	for i, w := range p.Windows {
		if err := w.validate(); err != nil {
			return fmt.Errorf("compute_windows[%d]: %w", i, err)
		}
	}
	return nil
}

func (w Window) validate() error {
	switch {
	case w.Class == "" || len(w.Class) > maxClass:
		return fmt.Errorf("class: a name has 1 to %d bytes", maxClass)
	case w.Layers <= 0:
		return fmt.Errorf("layers is %d", w.Layers)
	case w.LayerBytes <= 0:
		return fmt.Errorf("layer_bytes is %d", w.LayerBytes)
	case !(w.ComputeUs > 0) || w.ComputeUs > float64(24*time.Hour/time.Microsecond):
		return errors.New("layer_compute_us must be above 0 and at most a day")
	}
	return nil
}

// near is how far a request may be from a window, as a factor: chunks are
// whole, so prefixes of a kind differ by parts of a chunk, and hardly by more.
const near = 1.05

// Resolve says of which class a layerwise request is, "" if of none, and how
// long one of its layers computes: compute itself if it is above 0, because who
// asks knows best, else the class's window, or 0 if there is none. What it goes
// by is the size alone (and compute, if it is given): a guess, which a client
// that sends layer_compute_us does without. A nil profile knows nothing.
func (p *Profile) Resolve(layers int, layerBytes int64, compute time.Duration) (class string, window time.Duration) {
	if p == nil {
		return "", compute
	}
	best := math.Log(near)
	for _, w := range p.Windows {
		if w.Layers != layers {
			continue
		}
		off := distance(float64(w.LayerBytes), float64(layerBytes))
		if compute > 0 {
			off = max(off, distance(float64(w.compute()), float64(compute)))
		}
		if off < best || off == best && class == "" {
			best, class, window = off, w.Class, w.compute()
		}
	}
	if compute > 0 {
		window = compute
	}
	return class, window
}

// distance of two amounts is the logarithm of their ratio.
func distance(a, b float64) float64 {
	d := math.Abs(math.Log(a / b))
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return d
}
