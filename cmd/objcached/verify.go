package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/objcached/objcached/internal/server"
	"github.com/objcached/objcached/storage/local"
)

type verifyFlags struct {
	dir, admin string
	rate       size
	json       bool
}

func verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify (--data DIR | --admin URL)",
		Short: "Read a whole store and check every block",
		Long: `Read every object of a store and check every block against its CRC, and that
every extent has exactly one owner. It changes nothing.

With --data the store must not be in use; with --admin a running server
verifies its own, while it goes on serving. The exit status is 1 if anything
is bad.`,
		Example: `  objcached verify --data ./data
  objcached verify --admin http://127.0.0.1:9001 --rate 100MiB --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress, done := progressOn(cmd.ErrOrStderr())
			report, err := f.run(cmd.Context(), progress)
			done()
			if err != nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), report, f.json); err != nil {
				return err
			}
			if !report.Sound {
				return errFound
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.dir, "data", "", "directory of a store that is not in use")
	fl.StringVar(&f.admin, "admin", "", "admin address of a running server, like http://127.0.0.1:9001")
	fl.Var(&f.rate, "rate", "bytes per second to read; 0: as fast as it can")
	fl.BoolVar(&f.json, "json", false, "print the report as JSON")
	cmd.MarkFlagsMutuallyExclusive("data", "admin")
	cmd.MarkFlagsOneRequired("data", "admin")
	return cmd
}

func (f *verifyFlags) run(ctx context.Context, progress func(server.Progress)) (*server.VerifyReport, error) {
	if f.admin != "" {
		return verifyOnline(ctx, f.admin, int64(f.rate), progress)
	}
	return verifyOffline(ctx, f.dir, int64(f.rate), progress)
}

func verifyOffline(ctx context.Context, dir string, rate int64, progress func(server.Progress)) (_ *server.VerifyReport, err error) {
	// Opening would make a store where there is none.
	if _, err := os.Stat(filepath.Join(dir, "STORE")); err != nil {
		return nil, fmt.Errorf("no store in %s: %w", dir, err)
	}
	s, err := local.Open(ctx, local.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := server.Verify(ctx, s, rate, progress)
	return &r, err
}

func verifyOnline(ctx context.Context, admin string, rate int64, progress func(server.Progress)) (*server.VerifyReport, error) {
	target := strings.TrimSuffix(admin, "/") + "/verify?" + url.Values{"rate": {strconv.FormatInt(rate, 10)}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what there is of the reason
		return nil, fmt.Errorf("%s: %s: %s", admin, resp.Status, strings.TrimSpace(string(b)))
	}
	d := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var l server.VerifyLine
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("%s broke off: %w", admin, err)
		}
		switch {
		case l.Error != "":
			return nil, errors.New(l.Error)
		case l.Report != nil:
			return l.Report, nil
		case l.Progress != nil:
			progress(*l.Progress)
		}
	}
}

// progressOn shows progress on w if it is a terminal.
func progressOn(w io.Writer) (progress func(server.Progress), done func()) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(server.Progress) {}, func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription("verifying"), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
	// A bar that cannot be drawn is no reason to stop.
	return func(p server.Progress) {
			if bar.GetMax64() != p.Total {
				bar.ChangeMax64(p.Total)
			}
			_ = bar.Set64(p.Bytes)
		}, func() {
			_ = bar.Finish()
		}
}

// show prints a report for people, or as JSON.
func show(w io.Writer, r *server.VerifyReport, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("objects", r.Objects)
	row("parts of uploads", r.Parts)
	row("bytes", fmt.Sprintf("%d (%.1f MiB/s)", r.Bytes, float64(r.Bytes)/max(r.Seconds, 1e-9)/(1<<20)))
	row("bad blocks", r.BadBlocks)
	row("problems", r.ProblemCount)
	verdict := "sound"
	if !r.Sound {
		verdict = "BAD"
	}
	row("verdict", verdict)
	if len(r.Bad) > 0 {
		fmt.Fprintf(t, "\nbucket\tkey\tblock\terror\n")
		for _, b := range r.Bad {
			fmt.Fprintf(t, "%s\t%q\t%d\t%s\n", b.Bucket, b.Key, b.Block, b.Error)
		}
	}
	for _, p := range r.Problems {
		fmt.Fprintf(t, "\nproblem\t%s", p)
	}
	if len(r.Problems) > 0 {
		fmt.Fprintln(t)
	}
	return t.Flush()
}
