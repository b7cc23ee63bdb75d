// Command objcached is an S3 object store that understands LLM KV cache.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// commands make the commands of the program; other files of this package add
// theirs in init.
var commands = []func() *cobra.Command{serveCommand, verifyCommand, versionCommand}

// errFound ends a command with status 1 when it did its work and what it found
// is bad: it has been shown already.
var errFound = errors.New("")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal ends the context; from then on the second one kills.
	context.AfterFunc(ctx, stop)
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errFound) {
			fmt.Fprintln(os.Stderr, "objcached:", err)
		}
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "objcached",
		Short: "An S3 object store that understands LLM KV cache",
		Long: `objcached keeps objects for any S3 client, and answers the request that no
other S3 has: these N chunk objects, one layer at a time, in the order the GPU
consumes them.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, c := range commands {
		root.AddCommand(c())
	}
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "objcached", version())
			return nil
		},
	}
}

// version is what the build recorded about its source.
func version() string {
	v, rev, dirty := "(devel)", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				rev = " " + s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "+dirty"
			}
		}
	}
	return v + rev + dirty + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}
