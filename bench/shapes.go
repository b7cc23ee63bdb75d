package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Shape is a geometry with a name.
type Shape struct {
	Name string
	Geometry
}

// Shapes are the prefixes of the paper's tables: 4K and 64K tokens of context
// at a hit rate of 87.5 % in chunks of 16 tokens, with slices of a small model
// and of Llama 3.1 8B, and 4K tokens in chunks of 256.
var Shapes = []Shape{
	{"n224-s16k", Geometry{224, 32, 16 << 10}},
	{"n224-s64k", Geometry{224, 32, 64 << 10}},
	{"n3584-s16k", Geometry{3584, 32, 16 << 10}},
	{"n3584-s64k", Geometry{3584, 32, 64 << 10}},
	{"n14-s1m", Geometry{14, 32, 1 << 20}},
}

// ParseShapes reads "all" or names separated by commas.
func ParseShapes(s string) ([]Shape, error) {
	if s == "all" {
		return Shapes, nil
	}
	var out []Shape
	for name := range strings.SplitSeq(s, ",") {
		i := slices.IndexFunc(Shapes, func(s Shape) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no shape %q: there are %s", name, strings.Join(shapeNames(), ", "))
		}
		out = append(out, Shapes[i])
	}
	return out, nil
}

func shapeNames() []string {
	var names []string
	for _, s := range Shapes {
		names = append(names, s.Name)
	}
	return names
}

// LayerwiseSet is a Layerwise of several shapes, one after the other. Its
// Geometry is not used.
type LayerwiseSet struct {
	Layerwise
	Shapes []Shape
}

// LayerwiseSetReport is the result of a LayerwiseSet.
type LayerwiseSetReport struct {
	Command string        `json:"command"`
	Shapes  []ShapeReport `json:"shapes"`
}

// ShapeReport is the report of one shape, or why there is none.
type ShapeReport struct {
	Name    string           `json:"name"`
	Skipped string           `json:"skipped,omitempty"`
	Report  *LayerwiseReport `json:"report,omitempty"`
}

// manyRequests is how many ranged GETs a row may take: more than these tell
// nothing new and take minutes.
const manyRequests = 20_000

// Run runs shape by shape. One whose bytes do not fit in the machine's memory
// as often as they are held (in the store's pages, in the bare loops', and where
// they end) would measure the disk, and is left out.
func (b *LayerwiseSet) Run(ctx context.Context) (*LayerwiseSetReport, error) {
	r := &LayerwiseSetReport{Command: b.Command}
	for _, s := range b.Shapes {
		one := b.Layerwise
		one.Geometry = s.Geometry
		if s.Chunks*s.Layers > manyRequests {
			one.Skip = append(slices.Clone(one.Skip), "ranged")
		}
		if need, have := 3*s.Payload(), kib(field("/proc/meminfo", "MemAvailable"))<<10; have > 0 && need > have {
			r.Shapes = append(r.Shapes, ShapeReport{Name: s.Name,
				Skipped: fmt.Sprintf("needs %s of memory, %s is available", byteSize(need), byteSize(have))})
			continue
		}
		report, err := one.Run(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		r.Shapes = append(r.Shapes, ShapeReport{Name: s.Name, Report: report})
	}
	return r, nil
}

// WriteTable prints the reports for people.
func (r *LayerwiseSetReport) WriteTable(w io.Writer) error {
	for i, s := range r.Shapes {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: ", s.Name)
		if s.Report == nil {
			fmt.Fprintf(w, "left out, it %s\n", s.Skipped)
			continue
		}
		if err := s.Report.WriteTable(w); err != nil {
			return err
		}
	}
	return nil
}
