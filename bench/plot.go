package bench

import (
	"errors"
	"image/color"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// palette tells series apart, also for readers who cannot tell red from green.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff},
	{0xcc, 0x79, 0xa7, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x40, 0x40, 0x40, 0xff},
}

var (
	black = color.RGBA{0, 0, 0, 0xff}
	dark  = color.RGBA{0x30, 0x30, 0x30, 0xff}
	grey  = color.RGBA{0xa0, 0xa0, 0xa0, 0xff}
	faint = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

// newPlot is an empty plot with a title, a label of the y axis and faint lines
// across.
func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.Title.TextStyle.Font.Size = vg.Points(13)
	p.Title.Padding = vg.Points(6)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding, p.Legend.ThumbnailWidth = vg.Points(2), vg.Points(36)
	p.X.Tick.Label.Font.Size, p.Legend.TextStyle.Font.Size = vg.Points(10), vg.Points(10)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = faint
	p.Add(grid)
	return p
}

// points adds a series of glyphs to a plot and its legend. Without points it
// adds nothing.
func points(p *plot.Plot, name string, xys plotter.XYs, c color.Color, shape draw.GlyphDrawer, size font.Length) error {
	if len(xys) == 0 {
		return nil
	}
	s, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	s.GlyphStyle = draw.GlyphStyle{Color: c, Radius: size, Shape: shape}
	p.Add(s)
	p.Legend.Add(name, s)
	return nil
}

// decades are the ticks of a logarithmic axis, written as people do.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for d := math.Pow(10, math.Floor(math.Log10(low))); d <= high; d *= 10 {
		for k := range 9 {
			t := plot.Tick{Value: d * float64(k+1)}
			if k == 0 {
				t.Label = strconv.FormatFloat(d, 'g', 6, 64)
			}
			if t.Value >= low*0.999 && t.Value <= high {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// dash is a glyph: a short horizontal line.
type dash struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (dash) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, pt vg.Point) {
	c.StrokeLine2(draw.LineStyle{Color: sty.Color, Width: vg.Points(1.2)}, pt.X-sty.Radius, pt.Y, pt.X+sty.Radius, pt.Y)
}

// ring is a glyph: a dot with a light edge, to be seen on any ground.
type ring struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (ring) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, pt vg.Point) {
	edge := sty
	edge.Color, edge.Radius = color.White, sty.Radius+vg.Points(0.8)
	draw.CircleGlyph{}.DrawGlyph(c, edge, pt)
	draw.CircleGlyph{}.DrawGlyph(c, sty, pt)
}

// savePNG writes a table of plots to a PNG file, each of the size given.
func savePNG(file string, rows [][]*plot.Plot, width, height vg.Length) error {
	cols := len(rows[0])
	img := vgimg.NewWith(vgimg.UseWH(width*vg.Length(cols), height*vg.Length(len(rows))), vgimg.UseDPI(110))
	tiles := draw.Tiles{
		Rows: len(rows), Cols: cols, PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(10),
		PadX: vg.Points(14), PadY: vg.Points(14),
	}
	for i, canvases := range plot.Align(rows, tiles, draw.New(img)) {
		for k, c := range canvases {
			rows[i][k].Draw(c)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: img}.WriteTo(f)
	return errors.Join(err, f.Close())
}
