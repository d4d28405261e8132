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

// oneArg wants one argument, and asks for it where it is missing.
func oneArg(question string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return errors.New(question)
		case 1:
			return nil
		}
		return fmt.Errorf("one at a time: %q is too much", args[1])
	}
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
