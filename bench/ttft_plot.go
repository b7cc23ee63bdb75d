package bench

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// smallestAdded is where the logarithmic axis begins, in ms: less is not told
// from nothing.
const smallestAdded = 0.1

// Plot draws what every configuration adds to the optimal local TTFT, a panel
// for each transport, as a PNG.
func (r *TTFTReport) Plot(file string) error {
	var plots [][]*plot.Plot
	for _, t := range distinct(r.Rows, func(row TTFTRow) string { return row.Transport }) {
		if t == "" {
			continue // skipped rows
		}
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row TTFTRow) bool { return row.Transport != t })
		p, err := r.panel(t, rows)
		if err != nil {
			return err
		}
		plots = append(plots, []*plot.Plot{p})
	}
	if len(plots) == 0 {
		return fmt.Errorf("nothing was measured: there is nothing to plot")
	}
	return savePNG(file, plots, 27*vg.Centimeter, 11*vg.Centimeter)
}

// distinct are the values of f in order of appearance.
func distinct[T any, V comparable](rows []T, f func(T) V) (vs []V) {
	for _, row := range rows {
		if v := f(row); !slices.Contains(vs, v) {
			vs = append(vs, v)
		}
	}
	return vs
}

func (r *TTFTReport) panel(transport string, rows []TTFTRow) (*plot.Plot, error) {
	type config struct {
		context int
		hit     float64
	}
	configs := distinct(rows, func(row TTFTRow) config { return config{row.Context, row.Hit} })
	slices.SortFunc(configs, func(a, b config) int {
		return cmp.Or(cmp.Compare(a.context, b.context), cmp.Compare(a.hit, b.hit))
	})
	gs := distinct(rows, func(row TTFTRow) int { return row.G })
	slices.Sort(gs)

	title := "Added TTFT over the optimal local layerwise baseline, " + transport
	if r.LinkBytesPerSecond > 0 {
		title += fmt.Sprintf(", link held to %.3g Gbps", float64(r.LinkBytesPerSecond)*8/1e9)
	}
	p := newPlot(title, "added TTFT (ms)")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}}
	var predicted, x0 plotter.XYs
	high := smallestAdded * 10
	for i, g := range gs {
		var layer, chunk plotter.XYs
		for _, row := range rows {
			if row.G != g {
				continue
			}
			x := float64(slices.Index(configs, config{row.Context, row.Hit})) + (float64(i)-float64(len(gs)-1)/2)*0.24
			add := func(to *plotter.XYs, ms float64) {
				ms = max(ms, smallestAdded)
				high = max(high, ms)
				*to = append(*to, plotter.XY{X: x, Y: ms})
			}
			add(&layer, row.Added)
			add(&chunk, row.ChunkwiseAdded)
			add(&predicted, row.Eq3-row.Local)
			add(&x0, row.X0)
		}
		shape := shapes[i%len(shapes)]
		if err := points(p, fmt.Sprintf("layerwise, G = %d", g), layer, palette[i%len(palette)], shape, vg.Points(4)); err != nil {
			return nil, err
		}
		if err := points(p, fmt.Sprintf("chunkwise, G = %d", g), chunk, grey, shape, vg.Points(3)); err != nil {
			return nil, err
		}
	}
	if err := points(p, "Eq. 3 from the measured rate", predicted, black, dash{}, vg.Points(8)); err != nil {
		return nil, err
	}
	if err := points(p, "X0, which nothing hides", x0, palette[5], dash{}, vg.Points(8)); err != nil {
		return nil, err
	}
	labels := make([]string, len(configs))
	for i, c := range configs {
		labels[i] = fmt.Sprintf("%s tokens\n%v %% cached", tokens(c.context), c.hit)
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.5, float64(len(configs))-0.5
	p.Y.Min, p.Y.Max = smallestAdded, high*40 // room for the legend
	return p, nil
}
