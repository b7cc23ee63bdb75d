package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/objcached/objcached/internal/doctor"
)

func init() { commands = append(commands, doctorCommand) }

func doctorCommand() *cobra.Command {
	var o doctor.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do for objcached, and what to install",
		Long: `Look at this machine and say in plain words what it can and cannot do for
objcached: whether a store works in a directory, whether layers can go into the
memory of clients on this host (shared memory) and on other hosts (RDMA), and
what to install or change where they cannot.

Each check is one of

  ok       it works
  warn     it works, but not as well as it could; the advice says how
  missing  it does not work here
  unknown  it cannot be told

What can be tried is tried, on temporary files that are removed again; nothing
else is written. The exit status is 1 only if something that serve needs is
missing: a directory that cannot hold a store (with --data), or a network
interface without a usable RDMA device (with --fabric-interface). A machine
without RDMA is no error.

RDMA devices are named by their network interface. Without --fabric-interface
the fastest is chosen, and hardware before software.`,
		Example: `  # This machine, and a store to be in /srv/kv
  objcached doctor --data /srv/kv

  # Which RDMA device is behind ens1f0, how fast, on which NUMA node?
  objcached doctor --fabric-interface ens1f0

  # For a program: the devices, and all that is not ok
  objcached doctor --json | jq '.rdma_devices, (.groups[].checks[] | select(.status != "ok"))'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := doctor.Run(cmd.Context(), o)
			var err error
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetEscapeHTML(false)
				e.SetIndent("", "  ")
				err = e.Encode(r)
			} else {
				err = r.WriteText(cmd.OutOrStdout(), columns())
			}
			if err != nil {
				return err
			}
			if !r.Serve {
				return errFound
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Data, "data", "", "directory of a store, which need not exist yet")
	fl.StringVar(&o.FabricInterface, "fabric-interface", "", "network interface to deliver over by RDMA (default: the fastest that has a device)")
	fl.BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// columns is the width of the terminal, within what reads well.
func columns() int {
	w, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 100 // no terminal
	}
	return min(max(w, 60), 120)
}
