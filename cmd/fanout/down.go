package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.com/orderfanout/cmd/fanout/internal/up"
)

func downCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the data that fanout up has kept in this checkout",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			root, err := up.FindRoot(wd)
			if err != nil {
				return err
			}
			if !yes {
				fmt.Fprintf(cmd.OutOrStdout(), "Remove all orders, mails and logs in %s/.fanout? [y/N] ", root)
				answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
				if !strings.EqualFold(strings.TrimSpace(answer), "y") {
					return fmt.Errorf("nothing is removed (answer y, or give --yes)")
				}
			}
			found, err := up.Remove(root)
			if err != nil {
				return err
			}
			if found {
				fmt.Fprintln(cmd.OutOrStdout(), "removed .fanout")
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), "there is no .fanout")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
