// Command fanout is the operator's tool: it runs the system on this machine, and looks into one that runs elsewhere.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := rootCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fanout",
		Short:         "Run and operate orderfanout",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), lagCommand(), deadCommand(), republishCommand())
	return root
}
