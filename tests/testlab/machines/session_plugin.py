"""A fake of AWS's session-manager-plugin: it takes the same arguments and connects to sshd on 127.0.0.1.

The port is the TokenValue of the response to StartSession, which real sessions pass in the same variable.
"""

import json
import os
import socket
import sys

from bedplate.nodes.host_keys import relay


def main() -> None:
    """Carry stdin and stdout, as the plugin does for the document AWS-StartSSHSession."""
    response, region, operation, _profile, request, endpoint = sys.argv[1:]
    assert (response, operation) == ("AWS_SSM_START_SESSION_RESPONSE", "StartSession")
    assert endpoint == f"https://ssm.{region}.amazonaws.com" or endpoint.startswith("http://127.0.0.1:")
    session_request = json.loads(request)
    assert session_request["DocumentName"] == "AWS-StartSSHSession"
    assert session_request["Parameters"] == {"portNumber": ["22"]}
    session = json.loads(os.environ[response])
    assert session.keys() == {"SessionId", "StreamUrl", "TokenValue"}
    relay(socket.create_connection(("127.0.0.1", int(session["TokenValue"]))), 0, 1)


if __name__ == "__main__":
    main()
