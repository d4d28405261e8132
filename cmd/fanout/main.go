// Command fanout is the operator's tool: it runs the system on this machine, and looks into one that runs elsewhere.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	cmd, err := rootCommand().ExecuteC()
	if err != nil && !errors.As(err, new(verdictError)) {
		fmt.Fprintln(os.Stderr, "fanout:", err)
	}
	os.Exit(exitCode(cmd, err))
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fanout",
		Short:         "Run and operate orderfanout",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), checkCommand(), followCommand(), lagCommand(), deadCommand(),
		republishCommand(), trimCommand())
	return root
}
