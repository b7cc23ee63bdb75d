package doctor

import (
	"fmt"
	"io"
	"strings"
)

// WriteText prints the report as a table with a line of advice where there is
// some, width columns wide.
func (r *Report) WriteText(w io.Writer, width int) error {
	names := 0
	for _, g := range r.Groups {
		for _, c := range g.Checks {
			names = max(names, len(c.Name))
		}
	}
	const status = 11
	indent := strings.Repeat(" ", status+names+2)
	var b strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "%s\n", g.Name)
		for _, c := range g.Checks {
			fmt.Fprintf(&b, "%-*s%-*s", status, "  "+string(c.Status), names+2, c.Name)
			wrap(&b, c.Finding, indent, width)
			if c.Advice != "" {
				b.WriteString(indent)
				wrap(&b, "-> "+c.Advice, indent+"   ", width)
			}
		}
		b.WriteString("\n")
	}
	if r.Serve {
		b.WriteString("objcached serve works here.\n")
	} else {
		b.WriteString("objcached serve does NOT work here as asked:\n")
		for _, g := range r.Groups {
			for _, c := range g.Checks {
				if c.Required && c.Status == Missing {
					fmt.Fprintf(&b, "  %s: %s\n", c.Name, c.Finding)
				}
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes text and a newline; further lines start with indent.
func wrap(b *strings.Builder, text, indent string, width int) {
	room := max(width-len(indent), 20)
	used := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case used == 0:
		case used+1+len(word) > room:
			b.WriteString("\n" + indent)
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += len(word)
	}
	b.WriteByte('\n')
}
