# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause
# The head of the program for a node. Python 2.7 and 3.6 parse it, and say that they are too old.
import base64
import json
import sys
import zlib

if sys.version_info < (3, 9):
    found = "%s, which is Python %d.%d.%d" % ((sys.executable,) + sys.version_info[:3])
    sys.stdout.write("\n@BEGIN@\n%s\n@END@\n" % json.dumps({"python": found}))
    sys.exit(0)
body, packed = json.loads(zlib.decompress(base64.b64decode("@PAYLOAD@")).decode("utf-8"))
exec(compile(body, "<metal-gpu>", "exec"), {"packed": packed, "__name__": "metal_gpu_node"})
